"""Routes about Iceberg catalogs."""

from __future__ import annotations

from fastapi import APIRouter, Request

from gateway.catalog.lake.lake_catalogs import CatalogState
from gateway.commands.ddl.catalogs import CreateCatalog, DropCatalog
from gateway.execution.authorized_reader import requester_of
from gateway.http.errors import declared
from gateway.http.models.catalogs import CatalogList, CatalogModel, CatalogRequest
from gateway.http.queries import Served
from gateway.http.requests.login import User
from gateway.http.requests.routes import BoundedRoute
from gateway.http.routing.permitted import require_permitted
from gateway.http.services import Services
from gateway.security.policy import Action

router = APIRouter(route_class=BoundedRoute, prefix="/v1/catalogs", tags=["catalog"])


@router.get("")
def list_catalogs(gateway: Served, user: User) -> CatalogList:
    """List Iceberg catalogs."""
    return CatalogList(catalogs=[_shown(state, gateway, user) for state in gateway.catalogs.states()])


@router.get("/{name}", responses=declared(404))
def get_catalog(name: str, gateway: Served, user: User) -> CatalogModel:
    """Return one Iceberg catalog."""
    return _shown(gateway.catalogs.state(name), gateway, user)


@router.post("/{name}/test", responses=declared(404))
def test_catalog(name: str, gateway: Served, user: User) -> CatalogModel:
    """Ask a catalog for its tables now; the reply says what failed."""
    gateway.policy.require(user, Action.ADMINISTER_CATALOGS)
    state = gateway.catalogs.test(name, requester_of(user, gateway.settings.limits.request_s))
    return _shown(state, gateway, user)


@router.post("", status_code=201, responses=declared(409))
def add_catalog(body: CatalogRequest, request: Request, gateway: Served, user: User) -> CatalogModel:
    """Add a catalog that answers, with its tables."""
    gateway.policy.require(user, Action.ADMINISTER_CATALOGS)
    command = CreateCatalog(**body.model_dump())
    require_permitted(command, request, gateway, user)
    requester = requester_of(user, gateway.settings.limits.request_s)
    return _shown(gateway.catalogs.add(command.added(user.owner), requester), gateway, user)


@router.delete("/{name}", responses=declared(404))
def drop_catalog(name: str, request: Request, gateway: Served, user: User) -> dict[str, str]:
    """Drop a catalog that was added; its tables stay in it."""
    gateway.policy.require(user, Action.ADMINISTER_CATALOGS)
    require_permitted(DropCatalog(name), request, gateway, user)
    gateway.catalogs.remove(name)
    return {"removed": name}


def _shown(state: CatalogState, gateway: Services, user: User) -> CatalogModel:
    hidden = {} if gateway.policy.allows(user, Action.ADMINISTER_CATALOGS) else {"uri": None, "warehouse": None}
    return CatalogModel.showing(state, **hidden)
