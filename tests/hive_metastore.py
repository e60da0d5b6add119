"""A real Hive Metastore on loopback, from the classes in pyspark's wheel, in a JVM of its own."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway  # type: ignore[import-untyped]
from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]

from engines.machine.ports import free_port
from engines.spark.embedded.java import find_java_home

START_TIMEOUT_S = 180.0


@contextmanager
def hive_metastore(folder: Path) -> Iterator[str]:
    """Run a metastore that keeps itself under a folder; gives its address, such as ``thrift://127.0.0.1:9083``."""
    with (folder / "metastore.log").open("wb") as log:
        port, token = launch_gateway(
            classpath=str(Path(pyspark.__file__).parent / "jars" / "*"),
            javaopts=[f"-Dderby.system.home={folder}", "-Xmx512m"],
            java_path=str(find_java_home() / "bin" / "java"),
            redirect_stdout=log,
            redirect_stderr=log,
            die_on_exit=True,
            enable_auth=True,
        )
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
        try:
            address = ("127.0.0.1", free_port())
            server = _server(gateway, folder, *address)
            threading.Thread(target=_serve, args=(server,), daemon=True).start()
            _wait_for(address)
            yield f"thrift://{address[0]}:{address[1]}"
            server.stop()
        finally:
            gateway.shutdown()


def _server(gateway: JavaGateway, folder: Path, host: str, port: int) -> Any:
    jvm = gateway.jvm
    conf = jvm.org.apache.hadoop.hive.conf.HiveConf()
    for setting, value in {
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder / 'db'};create=true",
        "datanucleus.schema.autoCreateAll": "true",
        "hive.metastore.schema.verification": "false",
        "hive.metastore.warehouse.dir": (folder / "warehouse").as_uri(),
        "hive.in.test": "false",
        "datanucleus.connectionPoolingType": "HikariCP",  # of locks; the default one is not in the wheel
    }.items():
        conf.set(setting, value)
    metastore = jvm.org.apache.hadoop.hive.metastore
    metastore.txn.TxnDbUtil.prepDb(conf)  # tables of locks, without which no Iceberg table can be changed
    handler = metastore.HiveMetaStore.newRetryingHMSHandler("hms", conf, True)
    processor = metastore.api.ThriftHiveMetastore.Processor(handler)
    thrift = jvm.org.apache.thrift
    socket_ = thrift.transport.TServerSocket(jvm.java.net.InetSocketAddress(host, port))
    arguments = jvm.org.apache.thrift.server.TThreadPoolServer.Args(socket_).processor(processor)
    return jvm.org.apache.thrift.server.TThreadPoolServer(arguments)


def _serve(server: Any) -> None:
    with suppress(Py4JError, Py4JNetworkError):  # the JVM goes away under it
        server.serve()


def _wait_for(address: tuple[str, int]) -> None:
    give_up_s = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            with socket.create_connection(address, timeout=1.0):
                return
        except OSError:
            if time.monotonic() > give_up_s:
                raise
            time.sleep(0.1)
