"""What a cluster is made of and how fast it talks: facts of each rank, measurements, a verdict, a page."""

from shared.cluster.machine import describe_machine
from shared.cluster.page import write_survey
from shared.cluster.survey import AllReduce, ClusterSurvey, RankPair, find_problems

__all__ = ["AllReduce", "ClusterSurvey", "RankPair", "describe_machine", "find_problems", "write_survey"]
