"""Arrow Flight SQL: the protocol of ADBC and of Flight SQL's own JDBC driver. START HERE: service.py."""
