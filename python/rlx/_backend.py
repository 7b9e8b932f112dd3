"""Which backend runs ops and traced functions."""

from rlx import _core


class use_backend:
    """Chooses the backend of this thread: `rlx.use_backend("reference")`, or for a while: `with use_backend(..)`."""

    def __init__(self, name):
        self._before = _core.get_backend()
        _core.set_backend(name)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        _core.set_backend(self._before)


def get_backend():
    """The name of this thread's backend."""
    return _core.get_backend()


def backends():
    """The names of the backends of this build."""
    return _core.backends()


def clear_caches():
    """Forgets all compiled ops and functions (those that jit holds stay), and gives back the memory of results that are gone."""
    _core.clear_caches()
