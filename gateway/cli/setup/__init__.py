"""Commands about this machine and a gateway's settings. START HERE: doctor.py; config.py, reference.py."""
