"""A lifecycle node that answers a transition it cannot make, instead of ending."""

from __future__ import annotations

from typing import Any

from lifecycle_msgs.msg import State as Phase
from lifecycle_msgs.msg import Transition
from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.lifecycle import LifecycleNode

# Where a transition leads, and where a node already is that has made it.
_BEHIND = {
    Transition.TRANSITION_CONFIGURE: (Phase.PRIMARY_STATE_INACTIVE, Phase.PRIMARY_STATE_ACTIVE),
    Transition.TRANSITION_ACTIVATE: (Phase.PRIMARY_STATE_ACTIVE,),
}
_LABELS = {"configure": Transition.TRANSITION_CONFIGURE, "activate": Transition.TRANSITION_ACTIVATE}


class ManagedNode(LifecycleNode):
    """In rclpy up to 7.1 a request for a transition that is not open raises out of spin (ros2/rclpy#1209).

    Attributes:
        starts_itself: whether the node configures and activates itself; a manager that then asks for the same is told
            that it is done.
    """

    starts_itself = False

    def phase(self) -> int:
        """Where in its life the node is, a number of lifecycle_msgs/State."""
        return int(self._state_machine.current_state[0])

    def answer_transition(self, answer: Any, request: Any, response: Any) -> Any:
        """The response to a request, by rclpy's own `answer` where the transition is open."""
        asked = _LABELS.get(request.transition.label, request.transition.id)
        if self.starts_itself and self.phase() in _BEHIND.get(asked, ()):
            response.success = True
            return response
        try:
            return answer(self, request, response)
        except rclpy_implementation.RCLError:
            name, phase = request.transition.label or request.transition.id, self._state_machine.current_state[1]
            self.get_logger().warning(f"transition {name} is not possible while the node is {phase}; nothing changes")
            response.success = False
            return response


def _answer_in_place_of_rclpy() -> None:
    """rclpy hands its private method to the service when the node is made; it is found by its mangled name."""
    for base in LifecycleNode.__mro__:
        name = f"_{base.__name__}__on_change_state"
        own = vars(base).get(name)
        if own is not None:

            def answer(self: ManagedNode, request: Any, response: Any, own: Any = own) -> Any:
                return self.answer_transition(own, request, response)

            setattr(ManagedNode, name, answer)


_answer_in_place_of_rclpy()
