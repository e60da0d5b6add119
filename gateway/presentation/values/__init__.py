"""Values of results as each interface can carry them; docs/clients/values.md lists them.

START HERE: plain_columns.py, by Arrow's kernels; json_values.py and nested_texts.py write nested values.
"""
