"""Builds the my_ops wheel: the extension and the operator package (opp/)."""

from setuptools import find_packages, setup

from custom_pypto.operator_package import BuildOperatorPackage, built_with, operator_extension

setup(
    packages=find_packages(include=["my_ops", "my_ops.*"]),
    install_requires=[built_with()],
    include_package_data=False,  # the sources of the extension stay out of the wheel
    ext_modules=[operator_extension("my_ops")],
    cmdclass={"build_ext": BuildOperatorPackage},
)
