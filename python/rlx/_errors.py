"""Errors: every request that RLX cannot serve raises an `Error` with a kind, a stable code and a sentence."""

import operator
import os


class Error(Exception):
    """What RLX raises.

    kind     whose fault it is: user, data, unsupported, resource, device or internal
    code     a stable word that callers may switch on, "axis-range"
    message  the sentence
    where    a node, or line:column of a text; empty when there is none
    """

    kind = "user"

    def __init__(self, code, message, where="", text=None):
        super().__init__(text or f"{self.kind} error [{code}]: {message}")
        self.code, self.message, self.where = code, message, where

    def __reduce__(self):
        return type(self), (self.code, self.message, self.where, str(self))


class UserError(Error, ValueError):
    """The caller asked for something that is not allowed."""


def checked_budget(who, memory_budget):
    """A number of bytes, 0 for none."""
    is_count = hasattr(memory_budget, "__index__") and not isinstance(memory_budget, bool)
    if not is_count or not 0 <= operator.index(memory_budget) < 2**63:
        raise UserError(
            "memory-budget", f"{who}: memory_budget is a number of bytes, 0 for no limit, not {memory_budget!r}"
        )
    return operator.index(memory_budget)


class UserIndexError(UserError, IndexError):
    """An index that an array does not have."""


class DataError(Error, ValueError):
    """Bytes or text from outside are malformed."""

    kind = "data"


class UnsupportedError(Error, NotImplementedError):
    """A valid request that this build or device does not serve."""

    kind = "unsupported"


class ResourceError(Error, RuntimeError):
    """Memory, disk or a budget ran out."""

    kind = "resource"


class DeviceError(Error, RuntimeError):
    """A device or a library below failed."""

    kind = "device"


class InternalError(Error, RuntimeError):
    """RLX itself is broken."""

    kind = "internal"


_BY_KIND = {c.kind: c for c in (UserError, DataError, UnsupportedError, ResourceError, DeviceError, InternalError)}


def make_error(kind, code, message, where, text):
    """The exception for an error of the C++ library."""
    cls = UserIndexError if code == "index-range" else _BY_KIND[kind]
    return cls(code, message, where, text)


def file_name(path):
    """A path as the library takes it."""
    name = os.fspath(path)
    if (b"\0" if isinstance(name, bytes) else "\0") in name:
        raise UserError("file-open", f"{name!r} is the name of no file: it has a zero in it")
    return name


def checked_name(name):
    """A name of a graph or of a leaf as the library takes it."""
    if not isinstance(name, str):
        raise UserError("name", f"a name is a string, not {name!r}")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise UserError("utf8", f"{name!r} is no name: it is not Unicode text") from None
    return name
