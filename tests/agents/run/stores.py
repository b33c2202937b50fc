"""A store of objects behind ``s3://``, in memory: without folders, and it counts requests."""

import io

from fsspec.spec import AbstractFileSystem


class RefusedError(Exception):
    """What a store raises that cannot be reached; no `OSError`, as in some libraries."""


class Store(AbstractFileSystem):
    """Objects appear whole, when they are closed; renaming is copying one after the other.

    `requests` are those so far; `left` is after how many the store does not answer: once, or for
    good.
    """

    protocol = "s3"
    cachable = False

    def __init__(self):
        super().__init__(use_listings_cache=False)
        self.objects, self.requests, self.left, self.once = {}, [], None, False

    def _ask(self, kind, path):
        if self.left is not None:
            if self.left <= 0:
                self.left = None if self.once else 0
                raise RefusedError("the store does not answer")
            self.left -= 1
        self.requests.append((kind, path))

    def _info(self, name):
        if name in self.objects:
            return {"name": name, "size": len(self.objects[name]), "type": "file"}
        return {"name": name, "size": 0, "type": "directory"}

    def ls(self, path, detail=True, **options):
        path = self._strip_protocol(path)
        self._ask("list", path)
        below = [n[len(path) + 1 :] for n in self.objects if n.startswith(f"{path}/")]
        names = sorted({f"{path}/{name.partition('/')[0]}" for name in below})
        if not names and path not in self.objects:
            raise FileNotFoundError(path)
        found = [self._info(name) for name in names or [path]]
        return found if detail else [entry["name"] for entry in found]

    def info(self, path, **options):
        path = self._strip_protocol(path)
        self._ask("look", path)
        if path not in self.objects and not any(n.startswith(f"{path}/") for n in self.objects):
            raise FileNotFoundError(path)
        return self._info(path)

    def mkdir(self, path, create_parents=True, **options):
        """There are no folders."""

    def makedirs(self, path, exist_ok=False):
        """There are no folders."""

    def rm(self, path, recursive=False, maxdepth=None):
        for name in self.expand_path(path, recursive=recursive):
            if name in self.objects:
                self._ask("delete", name)
                del self.objects[name]

    def cp_file(self, path1, path2, **options):
        if path1 in self.objects:
            self._ask("copy", path1)
            self.objects[self._strip_protocol(path2)] = self.objects[path1]

    def _open(self, path, mode="rb", **options):
        if mode == "wb":
            return _Upload(self, path)
        self._ask("read", path)
        if path not in self.objects:
            raise FileNotFoundError(path)
        return io.BytesIO(self.objects[path])


class _Upload(io.BytesIO):
    def __init__(self, store, path):
        super().__init__()
        self._store, self._path = store, path

    def close(self):
        if not self.closed:
            content = self.getvalue()
            super().close()
            self._store._ask("write", self._path)
            self._store.objects[self._path] = content
