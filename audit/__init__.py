"""The audit of data directories: are the files what a broker may have written, and do the replicas agree?

No broker is asked; only files are read, and nothing is written. `audit` runs everything in this process,
`pylogd.spark_connector.audit` spreads the same work over a Spark cluster.

    from pylogd.audit import audit
    report = audit(["/var/lib/pylogd"])
    assert report.clean, report.findings
"""

from pylogd.audit.model import Finding, PartitionReport, ReplicaReport, Report
from pylogd.audit.run import audit

__all__ = ["Finding", "PartitionReport", "ReplicaReport", "Report", "audit"]
