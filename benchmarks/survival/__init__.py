"""Survival of patients in six regions, beside the runs that FLamby published of the same rows and settings."""
