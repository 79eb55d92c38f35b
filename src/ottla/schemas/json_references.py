"""References of JSON Schemas: from a URI, an anchor or a JSON pointer to the schema that it names.

All documents are walked once, so that each look-up takes as long as its reference. Nothing is fetched: a reference leads to the
schema itself or to the documents that come with it.
"""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote, urldefrag, urljoin

_NO_SCHEMAS: Final = frozenset({"enum", "const", "default", "examples"})
"""Keywords whose values may look like schemas."""
_ANCHORS: Final = ("$anchor", "$dynamicAnchor")


class References:
    """Schemas of some documents by URI.

    root       the schema whose references are looked up
    documents  others by the URI that refers to them
    legacy     whether keywords beside $ref, such as $id, have no effect, as up to draft 7
    """

    def __init__(self, root: Any, documents: Mapping[str, Any], *, legacy: bool) -> None:
        self._legacy = legacy
        self._schemas: dict[str, Any] = {}
        self._bases: dict[int, str] = {}
        for uri, document in (*documents.items(), ("", root)):
            self._schemas[urldefrag(uri)[0]] = document
            self._walk(document, urldefrag(uri)[0])

    def _walk(self, document: Any, uri: str) -> None:
        """Note the base URI of each object, and where identifiers and anchors lead."""
        waiting = [(document, uri)]
        while waiting:
            node, base = waiting.pop()
            if isinstance(node, list):
                waiting += [(item, base) for item in node]
            elif isinstance(node, dict):
                base = self._register(node, base)
                self._bases[id(node)] = base
                waiting += [(value, base) for keyword, value in node.items() if keyword not in _NO_SCHEMAS]

    def _register(self, node: dict[str, Any], base: str) -> str:
        """Note a schema under its identifier and anchors; return the base URI of what is in it. Raises ValueError."""
        for name in ("$id", "id"):
            identifier = node.get(name)
            if not isinstance(identifier, str) or (self._legacy and "$ref" in node):
                continue
            if identifier.startswith("#"):
                self._schemas.setdefault(base + identifier, node)
            elif name == "$id" or "://" in identifier:  # `id` may be the name of a property
                base = urldefrag(_join(base, identifier))[0]
                self._schemas.setdefault(base, node)
        for name in _ANCHORS:
            if isinstance(node.get(name), str):
                self._schemas.setdefault(f"{base}#{node[name]}", node)
        return base

    def look_up(self, reference: str, schema: Any) -> Any:
        """Return what a reference within a schema leads to. Raises LookupError, ValueError.

        schema  object of one of the documents
        """
        uri, fragment = urldefrag(_join(self._bases.get(id(schema), ""), reference))
        document = self._schemas.get(uri, self._schemas.get(urldefrag(reference)[0]))
        if fragment and not fragment.startswith("/"):
            return self._schemas[f"{uri}#{unquote(fragment)}"]
        if document is None:
            raise LookupError(uri)
        for part in unquote(fragment).split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            document = document[int(key)] if isinstance(document, list) else document[key]
        return document


def _join(base: str, reference: str) -> str:
    """Return an absolute URI; a fragment stays with any base, also with one that has no hierarchy, as urn:x."""
    return base + reference if reference.startswith("#") else urljoin(base, reference)
