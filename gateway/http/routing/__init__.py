"""Routes about where statements go: rules, and history decided again."""
