"""The gRPC status of a call to Spark Connect that came to no word of the server's own -> the error tree."""

from __future__ import annotations

import grpc

from engines.errors import EngineError, EngineUnavailable, MemoryExceeded

BY_GRPC_STATUS: dict[grpc.StatusCode, type[EngineError]] = {
    grpc.StatusCode.UNAVAILABLE: EngineUnavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: EngineUnavailable,
    grpc.StatusCode.CANCELLED: EngineUnavailable,
    grpc.StatusCode.UNAUTHENTICATED: EngineUnavailable,
    grpc.StatusCode.PERMISSION_DENIED: EngineUnavailable,
    grpc.StatusCode.RESOURCE_EXHAUSTED: MemoryExceeded,
}


def by_grpc_status(error: Exception) -> type[EngineError] | None:
    """Return what the status of a call means that never reached the server's own words; None where it says nothing."""
    status = _grpc_status(error)
    return BY_GRPC_STATUS.get(status) if status else None


def _grpc_status(error: Exception) -> grpc.StatusCode | None:
    if isinstance(error, grpc.RpcError) and isinstance(error, grpc.Call):
        return error.code()
    ask = getattr(error, "getGrpcStatusCode", None)
    return ask() if ask else None
