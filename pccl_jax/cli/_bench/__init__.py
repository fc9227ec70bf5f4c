"""The parts of ``pccl-jax bench``, in the order in which they come into play.

arguments, settings    what to measure
worker, job            one process (or all processes of a job, in step) that measures
cases                  one collective on one size: its operand and its bus bandwidth
contenders/            who competes; one file each
check, measure         the results are right; the times
lowering               time to trace and lower instead
own_time               time of a call without XLA's dispatch instead
report, peers          progress, JSON; what the comparison comes to
tables                 the whole report: columns has the wide table, side_by_side the Markdown one
                       across processes; grid has what all need
plot                   the picture of --plot
"""
