"""Extensions: objects that are handed to the resource manager of a seed, or of a Shoot."""
