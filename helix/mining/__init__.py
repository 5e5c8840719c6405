"""Mining: what tool an agent will call next, with which arguments, and how sure that is.

Nothing here runs anything: patterns are learned from traces (`helix.traces`) and asked for candidates.

    miner = Miner()                                 # or Miner.load("patterns.json", tenant="acme")
    miner.mine(sessions_of(read_events(path)))      # offline: all sessions, groups kept together
    history = History()                             # one for each session that is going on
    history.user("Where is my order 17?")           # what the user said
    history.add(event)                              # or an LlmEvent or ToolEvent, as they happen
    for each in miner.predict(history, most=6):     # before a decision: best first
        each.tool, each.args                        # the whole call, canonical
        each.p                                      # P(this is the next call), SAY included
        each.p_low                                  # lower bound of it, from the pattern's own chances
        each.chances, each.hits                     # what that bound rests on, discounted by age
        each.pattern, each.text                     # its name, and how people read it
    miner.observe(session)                          # a session has ended: score its decisions, then learn it
    miner.save("patterns.json", tenant="acme", schemas={tool: schema_hash(schema)})

`predict` changes nothing and reads no clock. `observe` scores first and learns after, so that chances and hits are of
predictions that did not know the outcome; it counts every chance, launched or not. A pattern is named by the last
event, the tool and where each argument comes from; its name is stable over files and runs. `miner.tools[name]` holds
the `ToolFacts` of a tool: the effect class that somebody declared for it, and the hash of its schema. Facts are labels:
the miner predicts calls of all tools, and whoever launches must look at the effects of each call by itself.

Candidates whose arguments would hold a secret are never made. One History belongs to one session; none of this may be
used from two threads at once.
"""

from __future__ import annotations

from helix.mining.candidates import Candidate, MinerSettings, ToolFacts
from helix.mining.history import History
from helix.mining.miner import Miner

__all__ = ["Candidate", "History", "Miner", "MinerSettings", "ToolFacts"]
