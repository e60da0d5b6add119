"""Drawings of the pages, as values that the templates write as SVG.

START HERE: drawing.py, bars over axes; plots.py of statistics, chart.py of a query's memory, scatter.py of peaks,
plan.py of a query's plan, phases.py of its time.
"""
