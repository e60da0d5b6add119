"""The gRPC status of a call to Spark Connect without an error of the server itself -> the error tree."""

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


def by_closed_channel(error: Exception) -> type[EngineError] | None:
    """Return the class of grpc's ValueError for a call on a closed channel; None: another error."""
    is_closed = type(error) is ValueError and "channel" in str(error).lower() and "closed" in str(error).lower()
    return EngineUnavailable if is_closed else None


def by_grpc_status(error: Exception) -> type[EngineError] | None:
    """Return the class of a call's gRPC status; None: unknown."""
    status = _grpc_status(error)
    return BY_GRPC_STATUS.get(status) if status else None


def _grpc_status(error: Exception) -> grpc.StatusCode | None:
    if isinstance(error, grpc.RpcError) and isinstance(error, grpc.Call):
        return error.code()
    ask = getattr(error, "getGrpcStatusCode", None)
    return ask() if ask else None
