"""Admin requests that list and delete groups of any type."""

from collections.abc import Iterable
from typing import NamedTuple

from ottla.client.admin.requests import Requests
from ottla.client.admin.results import Results
from ottla.client.errors import error_for
from ottla.protocol.errors import NONE
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse


class ListedGroup(NamedTuple):
    """Entry of a group list; state is "" before Kafka 2.6, type is "" before 3.8."""

    group_id: str
    protocol_type: str
    state: str
    type: str


class GroupRequests(Requests):
    """Requests about groups of any type."""

    async def list_groups(
        self, *, states: Iterable[str] = (), types: Iterable[str] = (), timeout: float | None = None
    ) -> dict[str, ListedGroup]:
        """List the groups of all coordinators, by id; filter by state ("Stable") and type ("share") if given.

        Raises the first error of a coordinator.
        """
        request = ListGroupsRequest()
        wanted_states, wanted_types = list(states), list(types)

        async def of_node(node: int) -> ListGroupsResponse:
            link = await self.metadata.network.ready(node)
            version = link.version(ListGroupsRequest)
            if version >= 4:
                request.states_filter = wanted_states
            if version >= 5:
                request.types_filter = wanted_types
            answer = await link.request(request, version)
            if answer.error_code != NONE:
                raise error_for(answer.error_code, f"list groups of node {node}")
            return answer

        async def attempt() -> list[ListGroupsResponse]:
            await self.metadata.fetch([])
            return await self.core.scheduler.every([of_node(node) for node in self.metadata.network.brokers])

        answers = await self.metadata.retrying("list groups", attempt, self.limit_ms(timeout))
        listed = {}
        for answer in answers:
            for row in answer.groups:
                if wanted_states and row.group_state and row.group_state.lower() not in map(str.lower, wanted_states):
                    continue
                listed[row.group_id] = ListedGroup(row.group_id, row.protocol_type, row.group_state, row.group_type)
        return listed

    async def delete_groups(self, groups: Iterable[str], *, timeout: float | None = None) -> Results[str, None]:
        """Delete groups without members, with all their offsets."""

        async def one(group_id: str) -> None:
            def code_of(answer: DeleteGroupsResponse) -> tuple[int, str | None]:
                return answer.results[0].error_code, answer.results[0].error_message

            request = DeleteGroupsRequest(groups_names=[group_id])
            await self.at_coordinator(group_id, request, timeout, code_of, operation="Delete")

        return await self.for_each(groups, one)
