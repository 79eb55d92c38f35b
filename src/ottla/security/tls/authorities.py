"""Names of authorities that a server lists when it asks a client for a certificate.

Python's `ssl` has no function for that list, OpenSSL has SSL_CTX_add_client_CA. It is called in the library that `ssl` itself
has loaded, with the SSL_CTX that a context holds in its first field:

     0                          object.__basicsize__
    +--------------------------+------------+-----
    | header of Python's object | SSL_CTX * | ...      PySSLContext in Modules/_ssl.c, CPython 3.2 to 3.15
    +--------------------------+------------+-----

Other interpreters, and builds that hide the functions of OpenSSL, list no names: then a client chooses without them.
"""

import ctypes
import ssl
import sys
from collections.abc import Iterable
from functools import cache
from typing import Any, Final

_NEWEST_KNOWN: Final = (3, 15)
"""Newest version of CPython whose layout of a context is known."""


@cache
def _openssl() -> Any:
    """Return OpenSSL as `ssl` has loaded it; None where its functions cannot be called."""
    if sys.implementation.name != "cpython" or sys.version_info[:2] > _NEWEST_KNOWN:
        return None
    try:
        import _ssl

        library = ctypes.CDLL(_ssl.__file__)
        functions = library.SSL_CTX_add_client_CA, library.d2i_X509, library.X509_free
    except (ImportError, AttributeError, OSError):  # built into the interpreter, or with hidden functions
        return None
    add, parse, free = functions
    add.argtypes, add.restype = (ctypes.c_void_p, ctypes.c_void_p), ctypes.c_int
    parse.argtypes, parse.restype = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long), ctypes.c_void_p
    free.argtypes, free.restype = (ctypes.c_void_p,), None
    return library


def name_authorities(context: ssl.SSLContext, certificates: Iterable[bytes]) -> None:
    """List the subjects of certificates in the requests for a client's certificate.

    certificates  X.509 in DER, which the context trusts
    """
    library = _openssl()
    if library is None:
        return
    pointer = ctypes.c_void_p.from_address(id(context) + object.__basicsize__)
    for der in certificates:
        data = ctypes.create_string_buffer(der, len(der))
        begin = ctypes.c_void_p(ctypes.addressof(data))  # d2i_X509 moves it behind what it has read
        certificate = library.d2i_X509(None, ctypes.byref(begin), len(der))
        if certificate:
            library.SSL_CTX_add_client_CA(pointer, certificate)  # copies the name
            library.X509_free(certificate)
