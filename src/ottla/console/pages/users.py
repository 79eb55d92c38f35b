"""Users with SCRAM credentials."""

from starlette.responses import Response

from ottla.client.admin.scram import ScramMechanism, UserScramCredentialDeletion, UserScramCredentialUpsertion
from ottla.console.clusters import TIMEOUT_S
from ottla.console.problem import Problem
from ottla.console.visit import Visit, change, integer, page


async def users(visit: Visit) -> Response:
    """List users and their credentials."""
    described = await visit.admin.describe_user_scram_credentials(timeout=TIMEOUT_S)
    rows = [(user, info) for user, infos in sorted(described.successes.items()) for info in infos]
    return visit.render(
        "users.html", title="Users", rows=rows, mechanisms=[_name(mechanism) for mechanism in ScramMechanism]
    )


def _name(mechanism: ScramMechanism) -> str:
    return mechanism.name.replace("_", "-")


def _mechanism(text: str) -> ScramMechanism:
    try:
        return ScramMechanism[text.replace("-", "_")]
    except KeyError:
        raise Problem(f"The mechanism is one of {', '.join(map(_name, ScramMechanism))}.") from None


async def put_user(visit: Visit) -> Response:
    """Set the password of a user."""
    user, password = await visit.field("user"), (await visit.form()).get("password", "")
    mechanism = _mechanism(await visit.field("mechanism"))
    visit.change = f"set {_name(mechanism)} credential of user {user}"
    if not user or not password:
        raise Problem("A credential needs a user and a password.")
    iterations = integer(await visit.field("iterations"), "Iterations", 8192, 4096, 16_384)
    credential = UserScramCredentialUpsertion(user, mechanism, password, iterations)
    (await visit.admin.alter_user_scram_credentials([credential], timeout=TIMEOUT_S)).check()
    return visit.redirect_with_notice(visit.link("/users"), f"The password of {user} was set.")


async def show_delete(visit: Visit) -> Response:
    """Ask whether to delete a credential."""
    user, mechanism = visit.text("user"), _name(_mechanism(visit.text("mechanism")))
    words = ("--alter", "--entity-type", "users", "--entity-name", user, "--delete-config", mechanism)
    return visit.confirm(
        f"Delete the {mechanism} credential of {user}?",
        text=f"{user} cannot log in with {mechanism} any more. Connections that are open stay open.",
        action=visit.link("/users/delete", user=user, mechanism=mechanism),
        button="Delete the credential",
        command=visit.command("configs", *words),
        cancel=visit.link("/users"),
    )


async def delete(visit: Visit) -> Response:
    """Delete a credential."""
    user, mechanism = visit.text("user"), _mechanism(visit.text("mechanism"))
    visit.change = f"delete {_name(mechanism)} credential of user {user}"
    deletion = UserScramCredentialDeletion(user, mechanism)
    (await visit.admin.alter_user_scram_credentials([deletion], timeout=TIMEOUT_S)).check()
    return visit.redirect_with_notice(visit.link("/users"), f"The {_name(mechanism)} credential of {user} was deleted.")


ROUTES = [
    page("/users", users),
    change("/users", put_user),
    page("/users/delete", show_delete),
    change("/users/delete", delete),
]
