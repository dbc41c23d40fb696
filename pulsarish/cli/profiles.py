"""``pulsarish profiles``: the clusters that a person uses, and as whom."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, ClassVar

import click

from pulsarish.cli.connections import token_reference
from pulsarish.cli.groups import Group
from pulsarish.cli.output import output_option, print_record, print_table, say
from pulsarish.model.errors import NotFound
from pulsarish.runtime.profiles import Profile, Profiles, profiles_file

__all__ = ["profiles"]


class _ProfilesGroup(Group):
    words: ClassVar[Mapping[str, str]] = {
        "add": "pulsarish profiles create NAME",
        "set": "pulsarish profiles create NAME --replace",
        "get": "pulsarish profiles show",
        "remove": "pulsarish profiles delete NAME",
    }


@click.group(cls=_ProfilesGroup)
def profiles() -> None:
    """Save clusters by name: addresses, trusted authorities and references to credentials.

    Commands use the profile in use, or that of --profile (PULSARISH_PROFILE); programs use
    pulsarish.Client.from_profile(). The file is ~/.config/pulsarish/profiles.toml
    (PULSARISH_PROFILES_FILE). Only its owner can read it, and it holds no secret.

    \b
    Example:
      pulsarish profiles create prod --url pulsarish+ssl://broker-1 --token-file orders.token
      pulsarish profiles use prod
    """


@profiles.command()
@click.argument("name")
@click.option("--url", default="", metavar="URL", help="Address for messages: pulsarish+ssl://...")
@click.option(
    "--admin-url", default="", metavar="URL", help="Address for administration: https://..."
)
@click.option("--auth-plugin", default="", metavar="NAME", help="token, basic, tls or oauth2.")
@click.option(
    "--auth-params",
    default="",
    metavar="TEXT",
    help="Parameters of --auth-plugin, with references to secrets: token:file:///path.",
)
@click.option("--token-file", metavar="FILE", help="File with a token, instead of these two.")
@click.option(
    "--trust-certs-file",
    default="",
    metavar="FILE",
    help="Authorities of the servers' certificates, PEM; default: those of the system.",
)
@click.option("--certificate-file", default="", metavar="FILE", help="Your certificate, PEM.")
@click.option("--key-file", default="", metavar="FILE", help="The key of --certificate-file, PEM.")
@click.option(
    "--no-validate-hostname", is_flag=True, help="Take certificates that name another host."
)
@click.option("--allow-insecure", is_flag=True, help="Take any certificate. For tests only.")
@click.option("--replace", is_flag=True, help="Replace a profile of this name.")
def create(
    name: str,
    url: str,
    admin_url: str,
    auth_plugin: str,
    auth_params: str,
    token_file: str | None,
    trust_certs_file: str,
    certificate_file: str,
    key_file: str,
    no_validate_hostname: bool,
    allow_insecure: bool,
    replace: bool,
) -> None:
    """Save the cluster NAME. The first one is in use at once.

    \b
    Example:
      pulsarish profiles create prod --url pulsarish+ssl://broker:6661 --admin-url https://broker:8443
          --trust-certs-file ca.pem --token-file ~/prod.token
    """
    if token_file is not None:
        if auth_plugin or auth_params:
            raise click.UsageError("give either --token-file, or --auth-plugin and --auth-params")
        auth_plugin, auth_params = "token", "token:" + token_reference(token_file)
    profile = Profile(
        url=url,
        admin_url=admin_url,
        auth_plugin=auth_plugin,
        auth_params=auth_params,
        tls_trust_certs_file_path=_absolute(trust_certs_file),
        tls_certificate_file_path=_absolute(certificate_file),
        tls_private_key_file_path=_absolute(key_file),
        tls_validate_hostname=not no_validate_hostname,
        tls_allow_insecure_connection=allow_insecure,
    )
    _check(profile)
    found = Profiles.read(profiles_file())
    found.put(name, profile, replace=replace)
    found.write()
    say(f"saved profile {name}" + (", which is in use" if found.current == name else ""))


@profiles.command("list")
@output_option
def list_(output: str) -> None:
    """List the profiles.

    \b
    Example:
      pulsarish profiles list
    """
    found = Profiles.read(profiles_file())
    rows: list[dict[str, Any]] = [
        {"profile": name, "in_use": name == found.current, **asdict(each)}
        for name, each in sorted(found.found.items())
    ]
    print_table(rows, ["profile", "in_use", "url", "admin_url", "auth_plugin"], output)


@profiles.command()
@click.argument("name")
def use(name: str) -> None:
    """Use the profile NAME from now on.

    \b
    Example:
      pulsarish profiles use prod
    """
    found = Profiles.read(profiles_file())
    found.use(name)
    found.write()
    say(f"profile {name} is in use")


@profiles.command()
@click.argument("name", required=False)
@output_option
def show(name: str | None, output: str) -> None:
    """Show the profile NAME, or the one in use. References to secrets are shown, no secret is.

    \b
    Example:
      pulsarish profiles show prod
    """
    found = Profiles.read(profiles_file())
    name = name or os.environ.get("PULSARISH_PROFILE") or found.current
    if not name:
        raise NotFound("no profile is in use; name one, or use one: pulsarish profiles use NAME")
    print_record({"profile": name, **asdict(found.get(name))}, output)


@profiles.command()
@click.argument("name")
def delete(name: str) -> None:
    """Delete the profile NAME. Files that it refers to stay.

    \b
    Example:
      pulsarish profiles delete prod
    """
    found = Profiles.read(profiles_file())
    found.delete(name)
    found.write()
    say(f"deleted profile {name}")


def _absolute(path: str) -> str:
    return os.path.abspath(path) if path else ""


def _check(profile: Profile) -> None:
    """Raise the error that a client would raise for the addresses and options of a profile."""
    from pulsarish.admin import Admin
    from pulsarish.client.service_url import parse_service_url

    if not profile.url and not profile.admin_url:
        raise click.UsageError("give --url, --admin-url or both")
    profile.check()
    if profile.url:
        parse_service_url(profile.url)
    if profile.admin_url:
        Admin(profile.admin_url, **profile.arguments(profile.admin_url))
