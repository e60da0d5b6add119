"""Flight's and Flight SQL's messages; hatch_build.py compiles the .proto files. START HERE: ../messages.py."""
