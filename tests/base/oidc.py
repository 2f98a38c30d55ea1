"""A small OpenID provider over HTTP on loopback: discovery, authorisation, token, keys and user information.

It knows one person at a time (`claims`), signs what it says with RS256, and checks what a careful provider checks: redirect
address, client secret, PKCE (RFC 7636), and that a code counts once.
"""

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

CLIENT_ID, CLIENT_SECRET = "cleanup", "a secret between the two"


def fresh_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


KEY = fresh_key()


@dataclass
class OpenIDProvider:
    issuer: str = ""
    claims: dict[str, Any] = field(default_factory=dict)  # of the token
    about: dict[str, Any] = field(default_factory=dict)  # what differs in the user information
    signed_with: rsa.RSAPrivateKey = KEY
    asked: list[dict[str, str]] = field(default_factory=list)  # each request for authorisation
    codes: dict[str, dict[str, str]] = field(default_factory=dict)

    def authorize(self, asked: dict[str, str]) -> str:
        """Where the browser goes back to."""
        self.asked.append(asked)
        code = secrets.token_urlsafe()
        self.codes[code] = asked
        return f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}"

    def token(self, sent: dict[str, str]) -> dict[str, Any] | None:
        asked = self.codes.pop(sent.get("code", ""), None)
        if asked is None or (sent.get("client_id"), sent.get("client_secret")) != (CLIENT_ID, CLIENT_SECRET):
            return None
        verifier = hashlib.sha256(sent.get("code_verifier", "").encode()).digest()
        if base64.urlsafe_b64encode(verifier).rstrip(b"=").decode() != asked.get("code_challenge"):
            return None
        now = int(time.time())
        said = {"iss": self.issuer, "aud": CLIENT_ID, "iat": now, "exp": now + 300} | self.claims
        signed = jwt.encode(said, self.signed_with, "RS256", {"kid": "1"})
        return {"access_token": "access", "token_type": "Bearer", "expires_in": 300, "id_token": signed}

    def keys(self) -> dict[str, Any]:
        public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key()))
        return {"keys": [public | {"kid": "1", "alg": "RS256", "use": "sig"}]}

    def discovery(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "userinfo_endpoint": f"{self.issuer}/userinfo",
            "jwks_uri": f"{self.issuer}/keys",
            "token_endpoint_auth_methods_supported": ["client_secret_post"],
        }


@contextmanager
def serving() -> Iterator[OpenIDProvider]:
    provider = OpenIDProvider()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answers = {
                "/.well-known/openid-configuration": provider.discovery,
                "/keys": provider.keys,
                "/userinfo": lambda: provider.claims | provider.about,
            }
            self.answer(answers[urlsplit(self.path).path]())

        def do_POST(self) -> None:
            sent = dict(parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode()))
            self.answer(provider.token(sent))

        def answer(self, said: dict[str, Any] | None) -> None:
            body = json.dumps(said or {"error": "invalid_grant"}).encode()
            self.send_response(200 if said else 400)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider.issuer = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
