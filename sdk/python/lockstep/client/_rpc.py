"""The connection to a coordinator: calls, streams, and their errors.

Safe from any thread.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Iterable, Iterator
from typing import Any

from lockstep.client import _schema
from lockstep.client._context import Connection
from lockstep.errors import Error, InvalidArgumentError, NotFoundError, error_for

# grpc logs each failed handshake to stderr; the exception has what counts.
_quiet = "GRPC_VERBOSITY" not in os.environ
if _quiet:
    os.environ["GRPC_VERBOSITY"] = "NONE"
import grpc  # type: ignore[import-untyped,unused-ignore]  # noqa: E402

if _quiet:
    del os.environ["GRPC_VERBOSITY"]

# Seconds, of every call that is not a stream.
CALL_TIMEOUT = 30.0
# The name in every coordinator's certificate.
_SERVER_NAME = "lockstep-coordinator"
_MAX_MESSAGE = 4 << 20
_DOMAIN = "lockstep"
_SERVICES = {"ListNodes": "ClusterService", "UploadPackage": "PackageService"}

_RETRY = {
    "methodConfig": [
        {
            "name": [{}],
            "retryPolicy": {
                "maxAttempts": 4,
                "initialBackoff": "0.2s",
                "maxBackoff": "2s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ]
}

_OPTIONS = (
    ("grpc.max_receive_message_length", _MAX_MESSAGE),
    ("grpc.max_send_message_length", _MAX_MESSAGE),
    ("grpc.max_metadata_size", 16 << 10),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # Proxies of the environment are for web pages.
    ("grpc.enable_http_proxy", 0),
    ("grpc.service_config_disable_resolution", 1),
    ("grpc.service_config", json.dumps(_RETRY)),
)


def _read(what: str, path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            if what == "key" and os.fstat(file.fileno()).st_mode & stat.S_IRWXO:
                raise Error(
                    f"every user of this machine can read the key {path}: chmod 0600 it",
                    code="PERMISSION_DENIED",
                )
            return file.read(1 << 20)
    except FileNotFoundError as error:
        raise NotFoundError(
            f"{what} is missing: {path} does not exist; copy it here or issue one "
            "with `lockstep cert issue`",
            code="NOT_FOUND",
        ) from error
    except OSError as error:
        raise Error(f"{what}: {error}", code="FAILED_PRECONDITION") from error


def _is_loopback(address: str) -> bool:
    return address.startswith(("127.", "localhost:", "[::1]:"))


def _open(connection: Connection) -> Any:
    address = connection.address
    if connection.insecure_loopback:
        if not _is_loopback(address):
            raise InvalidArgumentError(
                f"plain text is for 127.0.0.1 only, {address} is another machine: "
                "give a certificate",
                code="INVALID_ARGUMENT",
            )
        credentials = grpc.local_channel_credentials(grpc.LocalConnectionType.LOCAL_TCP)
        return grpc.secure_channel(address, credentials, _OPTIONS)
    credentials = grpc.ssl_channel_credentials(
        _read("ca", connection.ca),
        _read("key", connection.key),
        _read("cert", connection.cert),
    )
    # The certificate has this name on every host, and only a coordinator's has.
    name = (("grpc.ssl_target_name_override", _SERVER_NAME),)
    return grpc.secure_channel(address, credentials, _OPTIONS + name)


def never_connected(error: Any) -> bool:
    """True if there was no connection: no server listens, or TLS failed."""
    text = error.details() or ""
    return error.code() == grpc.StatusCode.UNAVAILABLE and any(
        part in text
        for part in (
            "failed to connect",
            "DNS resolution failed",
            "errors resolving",
            "andshake",
        )
    )


def _unreachable(address: str, text: str) -> str:
    if "certificate verify failed" in text or "CERTIFICATE_VERIFY_FAILED" in text:
        return (
            f"{address} has a certificate of another CA, or one that is not valid "
            "now: give ca, cert and key of its cluster, and check both clocks"
        )
    if "WRONG_VERSION_NUMBER" in text or "wrong version number" in text:
        return (
            f"{address} does not speak TLS: is it a coordinator's gRPC port? "
            "Without TLS give insecure_loopback=True"
        )
    if "Socket closed" in text or "andshake" in text:
        return (
            f"{address} closes the connection: it speaks TLS but insecure_loopback "
            "is given, it does not know the CA of your certificate, your "
            "certificate is expired, or it is not a coordinator"
        )
    why = "connection refused" if "Connection refused" in text else text
    local = " (`lockstep local up` starts one on this machine)"
    return (
        f"cannot reach the coordinator at {address}: {why}; is it running there"
        f"{local if _is_loopback(address) else ''}?"
    )


def _reason(error: Any) -> str:
    """Returns the reason in google.rpc.ErrorInfo of the trailers, or ""."""
    schema = _schema.load()
    for name, value in error.trailing_metadata() or ():
        if name != "grpc-status-details-bin":
            continue
        try:
            status = schema.message("google.rpc.Status").FromString(value)
            for detail in status.details:
                if detail.type_url.rpartition("/")[2] != "google.rpc.ErrorInfo":
                    continue
                info = schema.message("google.rpc.ErrorInfo").FromString(detail.value)
                if info.domain == _DOMAIN:
                    return str(info.reason)
        except Exception:  # noqa: BLE001 - DecodeError, by protobuf's version.
            return ""
    return ""


def error_of(error: Any, address: str) -> Error:
    """Turns grpc's exception into ours."""
    code = error.code().name
    text = error.details() or ""
    reason = _reason(error)
    if code == "CANCELLED":
        # The client cancels only streams whose end it does not wait for, so the
        # server did.
        code, text = "UNAVAILABLE", "the coordinator is stopping"
    if code == "UNAVAILABLE" and not reason:
        if never_connected(error):
            text = _unreachable(address, text)
        else:
            text = f"the coordinator at {address}: {text}; try again in a moment"
    elif code == "DEADLINE_EXCEEDED":
        text = f"no answer from the coordinator at {address}: {text}"
    return error_for(code, text or code, reason)


class Rpc:
    """A channel with the methods that the client uses."""

    def __init__(self, connection: Connection) -> None:
        self.schema = _schema.load()
        self.connection = connection
        self.address = connection.address
        self._channel = _open(connection)
        self._stubs: dict[tuple[str, str], Any] = {}

    def close(self) -> None:
        self._channel.close()

    def message(self, name: str, /, **fields: Any) -> Any:
        """Makes a message of lockstep.v1."""
        return self.schema.message(name)(**fields)

    def _stub(self, method: str, kind: str) -> Any:
        key = (method, kind)
        if key not in self._stubs:
            service = _SERVICES.get(method, "JobService")
            path, request, answer = self.schema.method(service, method)
            self._stubs[key] = getattr(self._channel, kind)(
                path,
                request_serializer=request.SerializeToString,
                response_deserializer=answer.FromString,
            )
        return self._stubs[key]

    def call(self, method: str, request: Any, timeout: float = CALL_TIMEOUT) -> Any:
        """Makes a call; it is retried while the coordinator is briefly away."""
        try:
            return self._stub(method, "unary_unary")(request, timeout=timeout)
        except grpc.RpcError as error:
            raise error_of(error, self.address) from None

    def stream(self, method: str, request: Any, timeout: float | None = None) -> Iterator[Any]:
        """Yields the answers. Ends the call when the generator is closed."""
        call = self._stub(method, "unary_stream")(request, timeout=timeout)
        try:
            yield from call
        except grpc.RpcError as error:
            raise error_of(error, self.address) from None
        finally:
            call.cancel()

    def upload(self, requests: Any, timeout: float) -> Any:
        """Sends what ``requests()`` yields; begins again after an interruption."""
        connected = False
        for pause in (0.2, 0.5, 1.0, 2.0, 0.0):
            try:
                sent: Iterable[Any] = requests()
                stub = self._stub("UploadPackage", "stream_unary")
                return stub(iter(sent), timeout=timeout)
            except grpc.RpcError as error:
                connected = connected or not never_connected(error)
                again = error.code() == grpc.StatusCode.UNAVAILABLE and connected
                if not again or pause == 0.0:
                    raise error_of(error, self.address) from None
            time.sleep(pause)
        raise AssertionError("the last try returns or raises")
