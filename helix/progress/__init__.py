"""How far a run is, on standard error: a live view on a terminal, a line now and then elsewhere, JSON for programs."""

from helix.progress.facts import money as money
from helix.progress.measures import cost_of as cost_of
from helix.progress.plain import LINE_EVERY as LINE_EVERY
from helix.progress.show import MODES as MODES
from helix.progress.show import Progress as Progress
from helix.progress.show import kind_of as kind_of
from helix.progress.show import sayer as sayer
from helix.progress.words import clean as clean
from helix.progress.words import count as count
from helix.progress.words import say as say
