"""The REST interface: routes, models, one error mapping. The asynchronous edge over a synchronous core."""
