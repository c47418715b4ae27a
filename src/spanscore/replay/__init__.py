"""What has happened → scores: stored traces, decided on and named as they were live."""
