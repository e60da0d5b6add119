"""Compiles the package's .proto files whenever it is built or installed, an editable install's in place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PROTOS = "gateway/drivers/flight/protocol/*.proto"


class ProtobufHook(BuildHookInterface[Any]):
    """Writes ``x_pb2.py`` and ``x_pb2.pyi`` beside each ``x.proto``; the wheel takes them along as artifacts."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile. Raises RuntimeError where protoc refuses; it has said why on standard error."""
        from grpc_tools import protoc

        files = [str(file.relative_to(self.root)) for file in sorted(Path(self.root).glob(PROTOS))]
        into = [f"--proto_path={self.root}", f"--python_out={self.root}", f"--pyi_out={self.root}"]
        if protoc.main(["protoc", *into, *files]):
            raise RuntimeError(f"protoc could not compile {', '.join(files)}")
