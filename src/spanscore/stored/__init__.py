"""Work on stored data: trace stores, data sets, ``evaluate()``, replay, explain, import of annotations. No live traffic."""
