/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Between sched.c and trial.c. */
#ifndef BOND_TRIAL_H
#define BOND_TRIAL_H

#include "sched.h"

#define SCHED_NOISE 0.06	/* rates that are nearer to each other count as the same */

/* From estimates, and from who is benched, to the rates that are used. */
void sched_settle_rates(struct sched *s);

/* With another set of paths what a trial found is void. */
void trial_restart(struct sched *s);

/* Something was acknowledged: goes on with the trial under way, or begins one when it is time. */
void trial_step(struct sched *s);

#endif
