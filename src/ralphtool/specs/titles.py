"""What people call a change."""

from ralphtool.core import project as projects

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ralphtool.specs import Spec


def find_title(spec: "Spec") -> str:
    """What its author called the change, where that says more than its name; else nothing."""
    title = str(getattr(spec, "title", "") or "")
    says_no_more = projects.build_slug(title) == projects.build_slug(spec.change)
    return "" if says_no_more else " ".join(title.split())
