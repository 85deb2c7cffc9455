"""`muster.Broker`: a broker inside your own program, or beside it, and the test kit's face in Python."""

from muster.broker.broker import Broker
from muster.broker.kit import Commit, Group, Member, Record, Topic, Transaction
from muster.broker.running import new_loop

__all__ = ["Broker", "Commit", "Group", "Member", "Record", "Topic", "Transaction", "new_loop"]
