"""Drawings of the pages, as values that the templates write as SVG.

START HERE: drawing.py, bars over axes; plots.py of statistics, chart.py of a query's memory, scatter.py of peaks.
"""
