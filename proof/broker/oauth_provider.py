"""A token provider as an operator would write one, for a broker that takes unsecured tokens (RFC 7515, alg none)."""

import base64
import json
import os
import time
from collections.abc import Mapping

from aiokafka.abc import AbstractTokenProvider

SUBJECT = "STREAMDEDUP_TEST_TOKEN_SUBJECT"
VALID_S = 600


class UnsecuredTokens(AbstractTokenProvider):  # type: ignore[misc] # aiokafka has no types
    """Vouches for the user whom the environment names."""

    async def token(self) -> str:
        """A token without a signature."""
        now = int(time.time())
        claims = {"sub": os.environ[SUBJECT], "iat": now, "exp": now + VALID_S}
        return f"{_part({'alg': 'none'})}.{_part(claims)}."


def unsecured_tokens() -> UnsecuredTokens:
    """The factory that `kafka.sasl_oauth_token_provider` names."""
    return UnsecuredTokens()


def _part(content: Mapping[str, object]) -> str:
    text = json.dumps(content, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(text).decode().rstrip("=")
