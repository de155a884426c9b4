"""A stand-in for Azure Machine Learning: its calls over HTTPS, on this machine, for an unmodified azure-ai-ml.

What the service would refuse is refused here too (``rules.py``), and faults come when a test asks for them
(``faults.py``). ``fixture.py`` has the fixtures and the handle that tests hold.
"""
