"""``fusion gateways``: the gateways of a metastore, taken out of the load balancer and back."""

from __future__ import annotations

from typing import Annotated

import typer

from gateway.cli.target import Target, connected, to_gateway, under
from gateway.cli.terminal import AsJson, line, out, print_json
from gateway.cli.text.layout import print_table

ROUTE = "/v1/gateways"

gateways_app = typer.Typer(no_args_is_help=True, help="Gateways that share a metastore.")

GatewayName = Annotated[str, typer.Argument(help="The gateway, as fusion gateways list tells it.")]


@gateways_app.command("list")
@to_gateway
def list_gateways(target: Target, as_json: AsJson = False) -> None:
    """List the gateways that share this metastore."""
    with connected(target) as client:
        reply = client.get(ROUTE)
    if as_json:
        print_json(reply)
        return
    rows = [
        (
            gateway["name"],
            "leaving" if gateway["is_leaving"] else "serving",
            str(gateway["open_queries"]),
            gateway["address"] or "-",
            "answers" if gateway["answers"] else "",
        )
        for gateway in reply["gateways"]
    ]
    print_table(out, ("gateway", "state", "open queries", "address", ""), rows, right={2}, whole={0, 1})


@gateways_app.command("drain")
@to_gateway
def drain_gateway(target: Target, gateway: GatewayName) -> None:
    """Have load balancers go elsewhere; what it runs goes on, and what comes nevertheless is answered."""
    with connected(target) as client:
        client.post(f"{under(ROUTE, gateway)}/drain", {})
    line(f"{gateway} is not ready any more; fusion gateways resume {gateway} makes it ready again")


@gateways_app.command("resume")
@to_gateway
def resume_gateway(target: Target, gateway: GatewayName) -> None:
    """Have load balancers use a gateway again."""
    with connected(target) as client:
        client.post(f"{under(ROUTE, gateway)}/resume", {})
    line(f"{gateway} is ready again")
