"""Extensions come in; ManagedResources for the resource manager of a seed or Shoot go out."""
