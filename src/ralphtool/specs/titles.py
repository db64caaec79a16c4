"""The titles of changes, for people."""

from ralphtool.core import project as projects

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ralphtool.specs import Spec


def find_title(spec: "Spec") -> str:
    """The author's title of the change, if it says more than the name; else empty."""
    title = str(getattr(spec, "title", "") or "")
    says_no_more = projects.build_slug(title) == projects.build_slug(spec.change)
    return "" if says_no_more else " ".join(title.split())
