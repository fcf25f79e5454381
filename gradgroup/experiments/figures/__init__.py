"""The figures of the evaluation: panels of curves, and the picture of the idea.

Data come as plain records, a figure is drawn from them, and a figure is saved for screens and for
print. No figure is ever on pyplot's list, and drawing changes no setting of Matplotlib's.
"""

from gradgroup.experiments.figures._files import save
from gradgroup.experiments.figures._idea import IdeaInfo, idea_info
from gradgroup.experiments.figures._idea_drawing import plot_idea
from gradgroup.experiments.figures._panels import plot_panels
from gradgroup.experiments.figures._records import Curve, Frame, Line, Panel

__all__ = [
    "Curve",
    "Frame",
    "IdeaInfo",
    "Line",
    "Panel",
    "idea_info",
    "plot_idea",
    "plot_panels",
    "save",
]
