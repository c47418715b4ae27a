"""Jobs between the span thread and the workers, one file per kind of queue."""
