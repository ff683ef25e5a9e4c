"""What a release consists of, made so that the same sources give the same bytes."""
