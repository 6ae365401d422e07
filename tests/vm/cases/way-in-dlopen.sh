# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# A program that opens libibverbs by dlopen and dlvsym, as NCCL does.
rails 2 100mbit || fail "no rails"
bonds 2
program dlopen_verbs
