"""Setuptools reads setup.cfg; this file lets older tools install the package in place."""

from setuptools import setup

setup()
