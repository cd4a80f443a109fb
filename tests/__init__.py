"""Tests of agentkernel, in the folders of the rooms that they test."""
