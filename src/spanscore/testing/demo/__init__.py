"""The demo's application: a handbook chain and an agent of a ferry company, scored live."""
