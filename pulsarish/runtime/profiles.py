"""Profiles: which cluster the commands and programs of a person use, and as whom.

They stand in one file in TOML, ``~/.config/pulsarish/profiles.toml`` unless
``PULSARISH_PROFILES_FILE`` names another one. It holds references to secrets, never secrets, and is
readable for its owner only. Imports only the standard library, since the command line waits for the
import.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

from pulsarish.model.errors import (
    AlreadyExists,
    ConfigError,
    InvalidArgument,
    InvalidConfiguration,
    NotFound,
    OperationNotSupported,
)
from pulsarish.runtime.client_authentication import Authentication
from pulsarish.runtime.secret_references import check_private

__all__ = [
    "Profile",
    "Profiles",
    "find_profile",
    "is_tls_url",
    "profile_arguments",
    "profiles_file",
]

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_HEAD: Final = """\
# Written by "pulsarish profiles". Credentials are references, such as token:file:///path.
"""


@dataclass(frozen=True, slots=True)
class Profile:
    """A cluster, and who uses it. An empty text: not set."""

    url: str = ""
    """``pulsarish://`` or ``pulsarish+ssl://``, for messages."""
    admin_url: str = ""
    """``http://`` or ``https://``, for administration."""
    auth_plugin: str = ""
    auth_params: str = ""
    """Of ``auth_plugin``, with references to secrets."""
    tls_trust_certs_file_path: str = ""
    tls_certificate_file_path: str = ""
    tls_private_key_file_path: str = ""
    tls_validate_hostname: bool = True
    tls_allow_insecure_connection: bool = False

    def check(self) -> None:
        """Raise ``InvalidArgument`` or ``OperationNotSupported`` if it cannot be used as it is."""
        made = self.authentication()
        if made is not None and made.provider.holds_secret:
            raise InvalidArgument(
                "auth_params holds the secret itself: write it to a file that only you can read, "
                "and refer to that, such as token:file:///path"
            )

    def authentication(self) -> Authentication | None:
        """Return how its user proves who he is; ``None``: not at all.

        Raises ``InvalidArgument``, ``OperationNotSupported``.
        """
        if not self.auth_plugin:
            if self.auth_params:
                raise InvalidArgument(
                    "auth_params is given without auth_plugin: give one of token, basic, tls, "
                    "oauth2"
                )
            return None
        return Authentication(self.auth_plugin, self.auth_params)

    def arguments(self, url: str) -> dict[str, Any]:
        """Return the keyword arguments of a ``Client`` or ``Admin`` for this URL.

        Those of TLS only for a URL of TLS. Raises as ``authentication``, and
        ``AuthenticationError`` if other users can read the secret.
        """
        found: dict[str, Any] = {}
        made = self.authentication()
        if made is not None:
            found["authentication"] = made
            check_private(made.provider.secret_file)
        if is_tls_url(url):
            check_private(self.tls_private_key_file_path)
            for name in (
                "tls_trust_certs_file_path",
                "tls_certificate_file_path",
                "tls_private_key_file_path",
            ):
                if getattr(self, name):
                    found[name] = getattr(self, name)
            found["tls_validate_hostname"] = self.tls_validate_hostname
            found["tls_allow_insecure_connection"] = self.tls_allow_insecure_connection
        return found


def profile_arguments(name: str | None, *, admin: bool) -> tuple[str, dict[str, Any]]:
    """Return the URL of a profile and the other arguments of its ``Client`` or ``Admin``.

    Args:
        name: ``None``: that of ``PULSARISH_PROFILE``, or the one in use.

    Raises ``NotFound`` when there is none, ``InvalidConfiguration`` for one without this URL, and
    the errors of ``find_profile`` and of ``Profile.arguments``.
    """
    found, profile = find_profile(name)
    if not found:
        raise NotFound("no profile is in use; name one, or use one: pulsarish profiles use NAME")
    url = profile.admin_url if admin else profile.url
    if not url:
        key = "admin_url" if admin else "url"
        raise InvalidConfiguration(
            f"profile {found} has no {key}; add it: pulsarish profiles create {found} --replace"
        )
    return url, profile.arguments(url)


def profiles_file() -> Path:
    given = os.environ.get("PULSARISH_PROFILES_FILE")
    if given:
        return Path(given)
    home = os.environ.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path.home() / ".config") / "pulsarish" / "profiles.toml"


def is_tls_url(url: str) -> bool:
    return url.startswith(("pulsarish+ssl://", "https://"))


def find_profile(name: str | None = None) -> tuple[str, Profile]:
    """Return the name and the profile of this name, of ``PULSARISH_PROFILE``, or the one in use.

    The name is empty and the profile too when none is named and none is in use.

    Raises ``NotFound`` for one that does not exist, and the errors of ``Profiles.read``.
    """
    profiles = Profiles.read(profiles_file())
    wanted = name or os.environ.get("PULSARISH_PROFILE") or profiles.current
    return (wanted, profiles.get(wanted)) if wanted else ("", Profile())


class Profiles:
    """The content of the file.

    Args:
        current: the one in use; empty: none.
    """

    def __init__(self, path: Path, found: Mapping[str, Profile], current: str) -> None:
        self._path = path
        self.found = dict(found)
        self.current = current

    @classmethod
    def read(cls, path: Path) -> Profiles:
        """Return the profiles of a file; none when there is no file.

        Raises ``ConfigError`` if others can read it, or for content that is none.
        """
        try:
            with path.open("rb") as file:
                mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
                data = file.read()
        except FileNotFoundError:
            return cls(path, {}, "")
        if mode & 0o077:
            raise ConfigError(
                f"other users can read or change {path} (mode {mode:04o}): chmod 600 {path}"
            )
        try:
            content = tomllib.loads(data.decode())
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ConfigError(f"{path} is not valid TOML: {error}") from None
        sections = content.get("profiles", {})
        current = content.get("current", "")
        if not isinstance(sections, dict) or set(content) - {"profiles", "current"}:
            raise ConfigError(f"{path} must hold only current and [profiles.NAME]")
        found = {name: _profile(path, name, each) for name, each in sections.items()}
        if not isinstance(current, str) or (current and current not in found):
            raise ConfigError(f"{path}: current names no profile of this file")
        return cls(path, found, current)

    def get(self, name: str) -> Profile:
        """Return a profile. Raises ``NotFound``."""
        try:
            return self.found[name]
        except KeyError:
            known = f"it has {', '.join(sorted(self.found))}" if self.found else "it has none"
            raise NotFound(f"{self._path} has no profile {name[:64]!r}: {known}") from None

    def put(self, name: str, profile: Profile, *, replace: bool) -> None:
        """Add a profile; the first one is in use at once.

        Raises ``AlreadyExists`` unless ``replace``, ``InvalidArgument``.
        """
        if not _NAME.fullmatch(name):
            raise InvalidArgument(
                f"a profile's name has 1 to 64 letters, digits, - and _, unlike {name[:80]!r}"
            )
        if name in self.found and not replace:
            raise AlreadyExists(f"the profile {name} exists: give --replace to replace it")
        profile.check()
        self.current = self.current or name
        self.found[name] = profile

    def use(self, name: str) -> None:
        """Make a profile the one in use. Raises ``NotFound``."""
        self.get(name)
        self.current = name

    def delete(self, name: str) -> None:
        """Delete a profile; when it is in use, none is afterwards. Raises ``NotFound``."""
        self.get(name)
        del self.found[name]
        if self.current == name:
            self.current = ""

    def write(self) -> None:
        """Replace the file, in one step, by one that only its owner can read.

        Raises ``OSError``.
        """
        folder = self._path.parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside = folder / f".{self._path.name}.{os.getpid()}"
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                os.fchmod(file.fileno(), 0o600)
                file.write(self._text())
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self._path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise

    def _text(self) -> str:
        lines = [_HEAD]
        if self.current:
            lines.append(f"current = {_toml(self.current)}\n")
        for name, profile in self.found.items():
            lines.append(f"\n[profiles.{name}]\n")
            default = asdict(Profile())
            lines += [
                f"{key} = {_toml(value)}\n"
                for key, value in asdict(profile).items()
                if value != default[key]
            ]
        return "".join(lines)


def _toml(value: str | bool) -> str:
    # The escapes of JSON are those of TOML, except that TOML wants DEL escaped, too.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _profile(path: Path, name: str, content: object) -> Profile:
    """Return the profile of a section. Raises ``ConfigError``; values are not shown."""
    where = f"{path}: [profiles.{name[:64]}]"
    known = {each.name: type(each.default) for each in fields(Profile)}
    if not _NAME.fullmatch(name) or not isinstance(content, dict):
        raise ConfigError(f"{where} is no profile: a name has letters, digits, - and _")
    for key, value in content.items():
        if key not in known:
            raise ConfigError(
                f"{where} has the unknown key {key[:64]}; it takes {', '.join(known)}"
            )
        if not isinstance(value, known[key]):
            kind = "true or false" if known[key] is bool else "a text"
            raise ConfigError(f"{where}: {key} must be {kind}")
    profile = Profile(**content)
    try:
        profile.check()
    except (InvalidArgument, OperationNotSupported) as error:
        raise ConfigError(f"{where}: {error}") from None
    return profile
