"""The selector as the gateway uses it: with RE2 for regular expressions."""

from gateway.planning.regular_expressions import search
from selector.cardinality.predicates.patterns import use_search

use_search(search)
