"""Graph converters of operators whose schema and prototype do not agree, a module each."""
