"""Maps spans of other libraries to GenAI names: one file per instrumentation."""
