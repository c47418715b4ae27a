"""The demo application: a handbook chain and an agent of a ferry company, scored live, with a stretch of broken retrieval."""
